# What is linked into our static programs, where no loader can be asked later: for `parley doctor --libs`.
# parley_static_libs(parley-init glibc=libc6-dev ...): library = the Debian package that has it.
set_property(GLOBAL PROPERTY parley_static_libs "")
function(parley_static_libs program)
    foreach(pair ${ARGN})
        string(REGEX MATCH "^([^=]+)=(.+)$" pair ${pair})
        set(library ${CMAKE_MATCH_1})
        set(package ${CMAKE_MATCH_2})
        execute_process(COMMAND dpkg-query -W -f "\${Version}" ${package} OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE failed)
        if(failed OR NOT version)
            set(version unknown)
        endif()
        set_property(GLOBAL APPEND_STRING PROPERTY parley_static_libs
            "    {\"${program}\", \"${library}\", \"${version}\", \"${package}\"},\n")
    endforeach()
endfunction()

# Writes ${to}: the rows of all programs.
function(parley_write_static_libs to)
    get_property(rows GLOBAL PROPERTY parley_static_libs)
    file(CONFIGURE OUTPUT ${to} CONTENT "/* Made by cmake/static_libs.cmake: {program, library, version, package}. */\n@rows@" @ONLY)
endfunction()
