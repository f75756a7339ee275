# Third-party libraries: the system's own first, otherwise fetched at the pin named here. Licences are in THIRD_PARTY.md.
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
if(LILY_TESTS)
  find_package(GTest REQUIRED)
endif()
