# cmake --install, the package files and the .deb. Included by the CMakeLists.txt at the top.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(part core layers optim)
  install(DIRECTORY ${part}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steadygrad/${part}
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*-inl.hpp" EXCLUDE
          PATTERN "package" EXCLUDE PATTERN "docs" EXCLUDE)
endforeach()
install(FILES ${STEADY_INCLUDE}/steadygrad/steadygrad.hpp ${STEADY_INCLUDE}/steadygrad/version.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/steadygrad)
install(TARGETS steadygrad EXPORT steadygrad-targets
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/steadygrad)
install(EXPORT steadygrad-targets NAMESPACE steadygrad:: DESTINATION ${package_dir})
configure_package_config_file(core/package/steadygrad-config.cmake.in steadygrad-config.cmake
                              INSTALL_DESTINATION ${package_dir})
# 0.x: a minor version may break what was there.
write_basic_package_version_file(steadygrad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/steadygrad-config.cmake
              ${PROJECT_BINARY_DIR}/steadygrad-config-version.cmake DESTINATION ${package_dir})

# pkg-config: the prefix is where the file lies, so that the tree may be moved.
file(RELATIVE_PATH STEADY_PC_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
list(GET HDF5_LIBRARIES 0 hdf5)  # Debian keeps it beside the directories that linkers search
get_filename_component(hdf5_dir ${hdf5} DIRECTORY)
set(STEADY_PC_PRIVATE_LIBS
    "-lhwy -ldnnl -lopenblas -L${hdf5_dir} -lhdf5 -lz -fopenmp -pthread")
if(STEADY_PROTOBUF)
  string(APPEND STEADY_PC_PRIVATE_LIBS " -lprotobuf-lite")
endif()
if(STEADY_HAS_MPI)
  string(APPEND STEADY_PC_PRIVATE_LIBS " -lmpi")
endif()
configure_file(core/package/steadygrad.pc.in steadygrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/steadygrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# cpack -G DEB: one package with the library and its headers.
set(CPACK_PACKAGE_NAME libsteadygrad-dev)
set(CPACK_PACKAGE_VENDOR steadygrad)
set(CPACK_PACKAGE_CONTACT "steadygrad developers <steadygrad@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ${BUILD_SHARED_LIBS})
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libfmt-dev")
if(NOT BUILD_SHARED_LIBS)
  string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS
         ", libhwy-dev, libdnnl-dev, libopenblas-dev, libhdf5-dev, zlib1g-dev")
  if(STEADY_PROTOBUF)
    string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libprotobuf-dev")
  endif()
  if(STEADY_HAS_MPI)
    string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libopenmpi-dev")
  endif()
endif()
include(CPack)
