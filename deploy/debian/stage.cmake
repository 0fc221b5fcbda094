# cpack reads this when the files of all packages are in folders, before it packs them.
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY}
                COMMAND_ERROR_IS_FATAL ANY)
