# lily_find_library(utf8proc TARGET utf8proc::utf8proc HEADER utf8proc.h LIBRARY utf8proc)
# For libraries whose packages ship no CMake configuration: sets <name>_FOUND and defines the imported target.
include(FindPackageHandleStandardArgs)

macro(lily_find_library name)
  cmake_parse_arguments(FIND "" "TARGET;HEADER;LIBRARY" "" ${ARGN})
  find_path(${name}_INCLUDE_DIR ${FIND_HEADER})
  find_library(${name}_LIBRARY ${FIND_LIBRARY})
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
  find_package_handle_standard_args(${name} REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR)
  if(${name}_FOUND AND NOT TARGET ${FIND_TARGET})
    add_library(${FIND_TARGET} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(${FIND_TARGET} PROPERTIES IMPORTED_LOCATION ${${name}_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
  endif()
endmacro()
