# Two JavaScript libraries of the web page: marked (Markdown) and DOMPurify (safe HTML). LILY_MARKED and LILY_DOMPURIFY are
# their files: the system's own (Debian's libjs-marked and node-dompurify), otherwise those of the same Debian packages, by
# hash. When they cannot be had, the page shows plain text instead of Markdown.
set(web_folder ${PROJECT_SOURCE_DIR}/build/packages/web)

# lily_web_library(LILY_MARKED path/in/the/package SHA1 SHA256 of the package)
function(lily_web_library out path sha1 sha256)
  find_file(${out} ${path} PATHS /usr/share ${web_folder}/usr/share NO_DEFAULT_PATH)
  mark_as_advanced(${out})
  if(${out})
    return()
  endif()
  set(package ${web_folder}/${sha1}.deb)
  message(STATUS "fetching ${path}")
  file(DOWNLOAD https://snapshot.debian.org/file/${sha1} ${package} STATUS status TIMEOUT 60)
  list(GET status 0 failed)
  if(NOT failed)
    file(SHA256 ${package} found)
  endif()
  if(failed OR NOT found STREQUAL sha256)
    file(REMOVE ${package})
    message(WARNING "${path} could not be fetched (${status}): the web page will show plain text instead of Markdown")
    return()
  endif()
  file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${web_folder})
  file(GLOB data ${web_folder}/data.tar*)
  file(ARCHIVE_EXTRACT INPUT ${data} DESTINATION ${web_folder})
  file(REMOVE ${data} ${package})
  set(${out} ${web_folder}/usr/share/${path} CACHE FILEPATH "of the web page" FORCE)
endfunction()

lily_web_library(LILY_MARKED javascript/marked/marked.umd.min.js
                 d9fe7eac8bdaa1ce81a443108b8dc9750f1f6dfd
                 1a500bd5a94922257f102aab7d0901a9aab08c9fd11c3ae834b400f34c4a2ce7)
lily_web_library(LILY_DOMPURIFY nodejs/dompurify/dist/purify.min.js
                 24a41b9501e622a40d1643906051abcc07fdd73e
                 d53f44fc141d017b36e666d61f80834846245b2e7fbb7a298b7b9a0bb27b1e64)

# The libraries under one name each; empty files when there are none, which web/markdown.js understands.
set(lily_web_libraries "")
foreach(library MARKED DOMPURIFY)
  string(TOLOWER ${library} name)
  set(file ${PROJECT_BINARY_DIR}/web/${name}.js)
  if(LILY_${library})
    configure_file(${LILY_${library}} ${file} COPYONLY)
  else()
    file(WRITE ${file} "")
  endif()
  list(APPEND lily_web_libraries ${file})
endforeach()
