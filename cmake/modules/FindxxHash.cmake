include(LilyFindLibrary)
lily_find_library(xxHash TARGET xxHash::xxhash HEADER xxhash.h LIBRARY xxhash)
