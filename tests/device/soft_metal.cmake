# The Metal device's own code against Metal in software (soft_metal/).
set(metal_sources metal_cpp.cpp metal_device.cpp metal_library.cpp metal_memory.cpp tensor_probe.cpp)
list(TRANSFORM metal_sources PREPEND ${PROJECT_SOURCE_DIR}/src/device/metal/)
set(soft_metal_sources ${CMAKE_CURRENT_SOURCE_DIR}/soft_metal/objc_runtime.cpp
                       ${CMAKE_CURRENT_SOURCE_DIR}/soft_metal/soft_metal.cpp)

lily_clang_objects(soft_metal_objects SOURCES ${metal_sources} ${soft_metal_sources})

# lily_soft_metal_test(name SOURCES a.cpp DEPS lily::x [TIMEOUT t]): a test in whose program make_device(kAuto) is Metal, in
# software, with all of lily's kernels.
add_library(lily_soft_metal STATIC EXCLUDE_FROM_ALL ${soft_metal_objects}
            ${CMAKE_CURRENT_SOURCE_DIR}/soft_metal/add_kernels.cpp ${PROJECT_SOURCE_DIR}/src/device/make_device.cpp)
target_compile_definitions(lily_soft_metal PUBLIC LILY_HAS_METAL LILY_SOFT_METAL)
target_include_directories(lily_soft_metal PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(lily_soft_metal PUBLIC lily::device lily::kernels PRIVATE lily_flags)
function(lily_soft_metal_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  # Whole: it has make_device() before lily::device has, and an object that nothing refers to.
  lily_test(${name} SOURCES ${ARG_SOURCES} DEPS -Wl,--whole-archive lily_soft_metal -Wl,--no-whole-archive ${ARG_DEPS}
            LABELS gpu TIMEOUT ${ARG_TIMEOUT})
endfunction()

lily_clang_objects(metal_test_objects SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/metal_test.cpp)
lily_test(metal_test SOURCES device_test.cpp test_device.cpp test_entries.cpp ${metal_test_objects}
          DEPS lily_soft_metal lily_test_device LABELS unit gpu)
