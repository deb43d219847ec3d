#include "shared/base/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn static void out_of_memory(void)
{
    static const char MESSAGE[] = "out of memory\n";
    ssize_t ignored UNUSED = write(STDERR_FILENO, MESSAGE, sizeof MESSAGE - 1);
    abort();
}

void *memory_new(size_t size)
{
    return memory_array(1, size);
}

void *memory_array(size_t count, size_t size)
{
    void *memory = count && size ? calloc(count, size) : calloc(1, 1);
    if (memory == NULL)
        out_of_memory();
    return memory;
}

void *memory_resize(void *old, size_t size)
{
    void *memory = realloc(old, size ? size : 1);
    if (memory == NULL)
        out_of_memory();
    return memory;
}

void *memory_copy(const void *from, size_t size)
{
    if (size == SIZE_MAX)
        out_of_memory();
    char *memory = malloc(size + 1);
    if (memory == NULL)
        out_of_memory();
    if (size)
        memcpy(memory, from, size);
    memory[size] = '\0';
    return memory;
}

char *memory_string(const char *text)
{
    return text ? memory_copy(text, strlen(text)) : NULL;
}

char *memory_printf(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0 || text == NULL)
        out_of_memory();
    return text;
}
