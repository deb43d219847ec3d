# A room is a folder; its library is named after it and holds every .c file of that folder (not of folders below).

function(parley_room name)
    cmake_parse_arguments(ARG "" "" "USES;WITHOUT" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
    foreach(left_out ${ARG_WITHOUT})
        list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${left_out})
    endforeach()
    add_library(parley_${name} STATIC ${sources})
    target_link_libraries(parley_${name} PUBLIC parley_flags ${ARG_USES})
endfunction()
