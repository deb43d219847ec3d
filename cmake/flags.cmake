# Warnings are errors; hardening as in dpkg-buildflags and beyond. The static init takes no sanitizer.

set(PARLEY_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes
    -Wwrite-strings -Wcast-qual -Wcast-align -Wformat=2 -Wundef -Wvla -Wswitch-enum -Wnull-dereference
    -Wimplicit-fallthrough -Werror)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND PARLEY_WARNINGS -Wduplicated-cond -Wduplicated-branches -Wlogical-op)
endif()

set(PARLEY_HARDENING
    -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -fno-strict-overflow
    -fno-delete-null-pointer-checks)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND PARLEY_HARDENING -ftrivial-auto-var-init=zero)
endif()
if(NOT PARLEY_SANITIZE AND NOT PARLEY_FUZZ AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    list(APPEND PARLEY_HARDENING -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
set(PARLEY_LINK_HARDENING -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code)

add_library(parley_flags_static INTERFACE)
target_compile_options(parley_flags_static INTERFACE ${PARLEY_WARNINGS} ${PARLEY_HARDENING})
target_compile_definitions(parley_flags_static INTERFACE _GNU_SOURCE PARLEY_VERSION="${PROJECT_VERSION}")
target_include_directories(parley_flags_static INTERFACE ${PROJECT_SOURCE_DIR})

add_library(parley_flags INTERFACE)
target_link_libraries(parley_flags INTERFACE parley_flags_static)
target_compile_options(parley_flags INTERFACE -fPIE)
target_link_options(parley_flags INTERFACE -pie ${PARLEY_LINK_HARDENING})
# h2o.h would otherwise take libuv's structs wherever uv.h is installed.
target_compile_definitions(parley_flags INTERFACE H2O_USE_LIBUV=0 H2O_USE_EPOLL=1)

set(PARLEY_INSTRUMENT ${PARLEY_SANITIZE})
if(PARLEY_FUZZ)
    set(PARLEY_INSTRUMENT fuzzer-no-link,address,undefined)
endif()
if(PARLEY_INSTRUMENT)
    target_compile_options(parley_flags INTERFACE -fsanitize=${PARLEY_INSTRUMENT} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    target_link_options(parley_flags INTERFACE -fsanitize=${PARLEY_INSTRUMENT})
    find_program(PARLEY_MOLD mold)
    if(PARLEY_MOLD) # hundreds of test programs: links in a fifth of the time
        target_link_options(parley_flags INTERFACE -fuse-ld=mold)
    endif()
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        target_compile_options(parley_flags INTERFACE -Wno-error=maybe-uninitialized -Wno-null-dereference)
    endif()
endif()
