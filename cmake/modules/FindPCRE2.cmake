include(LilyFindLibrary)
lily_find_library(PCRE2 TARGET PCRE2::8BIT HEADER pcre2.h LIBRARY pcre2-8)
