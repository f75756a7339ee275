# Two JavaScript libraries of the web page: marked (Markdown) and DOMPurify (safe HTML), from Debian's libjs-marked and
# node-dompurify. Elsewhere -DLILY_MARKED=FILE and -DLILY_DOMPURIFY=FILE name them; without them the page shows plain text
# instead of Markdown.
find_file(LILY_MARKED javascript/marked/marked.umd.min.js PATHS /usr/share NO_DEFAULT_PATH)
find_file(LILY_DOMPURIFY nodejs/dompurify/dist/purify.min.js PATHS /usr/share NO_DEFAULT_PATH)
mark_as_advanced(LILY_MARKED LILY_DOMPURIFY)

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
