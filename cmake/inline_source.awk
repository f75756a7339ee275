# awk -v root=src -f inline_source.awk src/kernels/a.metal: the file with every #include "..." in its place, once each.
# Metal compiles kernels at run time from one text: there are no files to include then.

function directory_of(path) { sub(/[^\/]*$/, "", path); return path }

function emit(path,    line, name, file) {
  if (path in seen) return
  seen[path] = 1
  while ((status = (getline line < path)) > 0) {
    if (line ~ /^#include "/) {
      name = line
      sub(/^#include "/, "", name)
      sub(/".*$/, "", name)
      file = name ~ /^kernels\// ? root "/" name : directory_of(path) name
      emit(file)
    } else if (line !~ /^#pragma once/) {
      print line
    }
  }
  if (status < 0) {
    print "inline_source: cannot read " path > "/dev/stderr"
    failed = 1
  }
  close(path)
}

BEGIN {
  emit(ARGV[1])
  exit failed
}
