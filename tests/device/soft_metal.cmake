# The Metal device's own code against Metal in software (soft_metal/).
set(metal_sources metal_cpp.cpp metal_device.cpp metal_library.cpp metal_memory.cpp)
list(TRANSFORM metal_sources PREPEND ${PROJECT_SOURCE_DIR}/src/device/metal/)
set(soft_metal_sources ${CMAKE_CURRENT_SOURCE_DIR}/soft_metal/objc_runtime.cpp
                       ${CMAKE_CURRENT_SOURCE_DIR}/soft_metal/soft_metal.cpp)

# lily_soft_metal: make_metal_device() for any test on Linux, after soft_metal::add_entries(kernels::all_entries()).
lily_clang_objects(soft_metal_objects SOURCES ${metal_sources} ${soft_metal_sources})
add_library(lily_soft_metal STATIC EXCLUDE_FROM_ALL ${soft_metal_objects})
set_target_properties(lily_soft_metal PROPERTIES LINKER_LANGUAGE CXX)
target_include_directories(lily_soft_metal INTERFACE ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(lily_soft_metal INTERFACE LILY_HAS_METAL LILY_SOFT_METAL)
target_link_libraries(lily_soft_metal PUBLIC lily::device lily::kernels)

lily_clang_objects(metal_test_objects SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/metal_test.cpp)
lily_test(metal_test SOURCES device_test.cpp test_device.cpp test_entries.cpp ${metal_test_objects}
          DEPS lily_soft_metal lily_test_device LABELS unit gpu)
