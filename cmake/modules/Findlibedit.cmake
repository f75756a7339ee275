include(LilyFindLibrary)
lily_find_library(libedit TARGET libedit::libedit HEADER histedit.h LIBRARY edit)
