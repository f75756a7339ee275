include(LilyFindLibrary)
lily_find_library(utf8proc TARGET utf8proc::utf8proc HEADER utf8proc.h LIBRARY utf8proc)
