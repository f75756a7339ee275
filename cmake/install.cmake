# `cmake --install build/release --prefix P`: P/bin/lily and what it reads at run time, P/share/lily.
include(GNUInstallDirs)
install(TARGETS lily RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY models/demo models/demo-goldens DESTINATION ${CMAKE_INSTALL_DATADIR}/lily)
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
