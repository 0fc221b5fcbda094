# Read by cpack when the files of all packages lie in folders, before they are packed.
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY}
                COMMAND_ERROR_IS_FATAL ANY)
