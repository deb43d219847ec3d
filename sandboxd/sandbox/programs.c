/* programs.c - see programs.h. Made when it is first asked for, and kept while the sandbox is known here: starts follow
 * each other quickly, and init tells by the file whether its zygote is of the same program. */
#include "sandboxd/sandbox/programs.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* `device` and `inode` are the original's, which may be gone by now and its number another's: `size` tells then, and
 * all that we give are of one front, which makes each once. */
struct program {
    dev_t device;
    ino_t inode;
    off_t size;
    int copy; /* -1: there is none */
};

struct programs {
    struct program last_used_first[PROGRAMS_MAX];
};

static int copy_of(int program, size_t size, struct error *err)
{
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, program, 0);
    if (bytes == MAP_FAILED) {
        error_set_errno(err, ERROR_INTERNAL, "mmap of a program");
        return -1;
    }
    int copy = fd_sealed_memfd("program", bytes, size, err);
    munmap(bytes, size);
    return copy;
}

static struct programs *programs_of(struct sandbox *sandbox)
{
    if (sandbox->programs)
        return sandbox->programs;
    sandbox->programs = memory_new(sizeof *sandbox->programs);
    for (size_t i = 0; i < PROGRAMS_MAX; i++)
        sandbox->programs->last_used_first[i].copy = -1;
    return sandbox->programs;
}

static bool is_of(const struct program *each, const struct stat *original)
{
    return each->copy >= 0 && each->device == original->st_dev && each->inode == original->st_ino &&
           each->size == original->st_size;
}

/* The one at `index` becomes the first. */
static struct program *use(struct programs *programs, size_t index)
{
    struct program *list = programs->last_used_first, used = list[index];
    for (; index > 0; index--)
        list[index] = list[index - 1];
    list[0] = used;
    return list;
}

static void drop(struct sandbox *sandbox, struct program *program)
{
    if (program->copy < 0)
        return;
    close(TAKE_FD(program->copy));
    sandbox_count_descriptors(sandbox, -1);
}

/* NULL with an error. */
static const struct program *find_or_copy(struct sandbox *sandbox, int program, struct error *err)
{
    struct programs *programs = programs_of(sandbox);
    struct stat original;
    if (fstat(program, &original) != 0) {
        error_set_errno(err, ERROR_INTERNAL, "fstat of a program");
        return NULL;
    }
    for (size_t i = 0; i < PROGRAMS_MAX; i++)
        if (is_of(&programs->last_used_first[i], &original))
            return use(programs, i);
    int copy = copy_of(program, (size_t)original.st_size, err);
    if (copy < 0)
        return NULL;
    struct program *made = use(programs, PROGRAMS_MAX - 1);
    drop(sandbox, made);
    *made =
        (struct program){.device = original.st_dev, .inode = original.st_ino, .size = original.st_size, .copy = copy};
    sandbox_count_descriptors(sandbox, 1);
    return made;
}

int programs_open(struct sandbox *sandbox, int program, struct error *err)
{
    char path[32];
    const struct program *own = find_or_copy(sandbox, program, err);
    if (!own)
        return -1;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", own->copy);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        error_set_errno(err, errno == EMFILE || errno == ENFILE ? ERROR_NO_CAPACITY : ERROR_INTERNAL,
                        "opening a program");
    return fd;
}

void programs_free(struct sandbox *sandbox)
{
    if (!sandbox->programs)
        return;
    for (size_t i = 0; i < PROGRAMS_MAX; i++)
        drop(sandbox, &sandbox->programs->last_used_first[i]);
    free(TAKE(sandbox->programs));
}
