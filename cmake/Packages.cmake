# Debian packages, by CPack: the contents of kvkeep, libkvkeep-client1 and libkvkeep-client-dev.
#
#   tools/packages            builds what is needed and makes them, into dist/
#
# A component is a package. deploy/debian/stage makes files from the binaries themselves (manual,
# completions), and sets the files' times. This file is included before any target is defined, for
# the name of the folder of libraries; the rest is deferred until all targets are defined.
if(EXISTS /etc/debian_version AND CMAKE_LIBRARY_ARCHITECTURE
   AND "${CMAKE_INSTALL_LIBDIR}" MATCHES "^(lib)?$") # lib: CMake's own default, of an older tree
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE} CACHE PATH "Folder of libraries" FORCE)
endif()
include(GNUInstallDirs)
if(NOT KVKEEP_BUILD_GRPC OR KVKEEP_SANITIZE)
  return()
endif()

# Packages are made from built targets: cpack builds nothing.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(KVKEEP_DEBIAN ${CMAKE_SOURCE_DIR}/deploy/debian)

function(kvkeep_install_files)
  set(deploy ${CMAKE_SOURCE_DIR}/deploy)
  install(TARGETS kvkeepd kvkeep RUNTIME DESTINATION bin COMPONENT kvkeep)
  install(FILES ${deploy}/config/kvkeep.yaml DESTINATION etc/kvkeep COMPONENT kvkeep)
  install(FILES ${deploy}/systemd/kvkeepd.service ${deploy}/systemd/var-lib-kvkeep-arena-rw.mount
                ${deploy}/systemd/var-lib-kvkeep-arena-ro.mount
          DESTINATION lib/systemd/system COMPONENT kvkeep)
  foreach(kind sysusers tmpfiles)
    install(FILES ${deploy}/${kind}.d/kvkeep.conf DESTINATION lib/${kind}.d COMPONENT kvkeep)
  endforeach()
  install(DIRECTORY ${deploy}/prometheus ${deploy}/grafana DESTINATION share/kvkeep
          COMPONENT kvkeep PATTERN "*.test.yaml" EXCLUDE)
  # Examples for operators to copy.
  install(FILES ${deploy}/config/arena.yaml DESTINATION share/kvkeep/examples/config
          COMPONENT kvkeep)
  install(DIRECTORY ${deploy}/systemd/kvkeepd.service.d
                    ${deploy}/systemd/var-lib-kvkeep-arena-rw.mount.d
          DESTINATION share/kvkeep/examples/systemd COMPONENT kvkeep)
  install(FILES ${deploy}/sysctl.d/60-kvkeep.conf.example
          DESTINATION share/kvkeep/examples/sysctl.d COMPONENT kvkeep)
  install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/SECURITY.md
                ${deploy}/RUNBOOK.md ${CMAKE_SOURCE_DIR}/config/REFERENCE.md
          DESTINATION share/doc/kvkeep COMPONENT kvkeep)
  install(FILES ${deploy}/README.md DESTINATION share/doc/kvkeep RENAME OPERATING.md
          COMPONENT kvkeep)
  install(FILES ${KVKEEP_DEBIAN}/kvkeepd.8 DESTINATION share/man/man8 COMPONENT kvkeep)
  # libkvkeep-client1 and -dev: client/c/CMakeLists.txt.
endfunction()
cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL kvkeep_install_files)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kvkeep)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
# CPack's value for none: otherwise the project's text would precede each package's.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_NAME} built using CMake")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL kvkeep client client_dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PRE_BUILD_SCRIPTS ${KVKEEP_DEBIAN}/stage.cmake)
set(CPACK_PROJECT_CONFIG_FILE ${KVKEEP_DEBIAN}/epoch.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "kvkeep maintainers <maintainers@kvkeep.example>")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

# Dependencies of a service, its user and its folders; a container without systemd has only the
# parts.
string(JOIN ", " service_depends "init-system-helpers (>= 1.54~)"
       "systemd | systemd-standalone-sysusers | systemd-sysusers"
       "systemd | systemd-standalone-tmpfiles | systemd-tmpfiles")
set(CPACK_DEBIAN_KVKEEP_PACKAGE_NAME kvkeep)
set(CPACK_DEBIAN_KVKEEP_PACKAGE_SECTION net)
set(CPACK_DEBIAN_KVKEEP_PACKAGE_DEPENDS "${service_depends}")
set(CPACK_DEBIAN_KVKEEP_PACKAGE_SUGGESTS "prometheus")
set(CPACK_DEBIAN_KVKEEP_PACKAGE_CONTROL_EXTRA
    ${KVKEEP_DEBIAN}/postinst ${KVKEEP_DEBIAN}/prerm ${KVKEEP_DEBIAN}/postrm
    ${KVKEEP_DEBIAN}/conffiles)
set(CPACK_COMPONENT_KVKEEP_DESCRIPTION
    "KV cache of a node's LLM inference engines
kvkeepd keeps the KV cache of inference engines in host memory and on local
NVMe, in one bounded pool that outlives the engines. This package has the
daemon, the command line tool kvkeep, and the units of its service.")

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME libkvkeep-client1)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA ${KVKEEP_DEBIAN}/triggers)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION
    "client of the KV cache daemon kvkeep, shared library
The C interface to kvkeepd, by shared memory on the same node or by gRPC. This
package has the library that programs load.")

set(CPACK_DEBIAN_CLIENT_DEV_PACKAGE_NAME libkvkeep-client-dev)
set(CPACK_DEBIAN_CLIENT_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CLIENT_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_CLIENT_DEV_PACKAGE_DEPENDS
    "libkvkeep-client1 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_COMPONENT_CLIENT_DEV_DESCRIPTION
    "client of the KV cache daemon kvkeep, for building
The C interface to kvkeepd, by shared memory on the same node or by gRPC. This
package has its header and its pkg-config file, kvkeep-client.")

include(CPack)
