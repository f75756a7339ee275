# What the GPU parts of lily are built with.

# Flags for a target that compiles .metal files for the host: MSL's implicit conversions are C++'s warnings, and the
# attributes of builtins turn into [[maybe_unused]] parameters.
function(lily_kernel_flags target)
  target_compile_options(${target} PRIVATE -O2 -Wall -Wextra -Werror -Wno-attributes -Wno-unknown-pragmas
                                           -Wno-unused-value -Wno-unused-variable -Wno-missing-field-initializers)
  if(LILY_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${LILY_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${LILY_SANITIZE})
  endif()
endfunction()
