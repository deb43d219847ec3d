#include "sandboxd/isolation/namespaces/proc.h"

#include "sandboxd/isolation/namespaces/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel's own, and what the host does. Not meminfo, stat, cpuinfo and their like, which programs need. */
static const char *const FILES[] = {
    "kcore",         "keys",     "key-users", "timer_list", "sched_debug",  "latency_stats", "config.gz", "kallsyms",
    "vmallocinfo",   "cmdline",  "locks",     "diskstats",  "interrupts",   "softirqs",      "iomem",     "ioports",
    "partitions",    "misc",     "modules",   "buddyinfo",  "zoneinfo",     "swaps",         "schedstat", "mdstat",
    "sysrq-trigger", "slabinfo", "kmsg",      "kpagecount", "pagetypeinfo", "kpageflags"};
static const char *const FOLDERS[] = {"scsi", "acpi", "pressure", "irq", "bus", "fs"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
_Static_assert(COUNT(FILES) + COUNT(FOLDERS) <= 64, "a bit each");

static const char *name_of(size_t number)
{
    return number < COUNT(FILES) ? FILES[number] : FOLDERS[number - COUNT(FILES)];
}

uint64_t proc_find_covers(void)
{
    uint64_t covers = 0;
    for (size_t i = 0; i < COUNT(FILES) + COUNT(FOLDERS); i++) {
        char path[64];
        struct stat status;
        snprintf(path, sizeof path, "/proc/%s", name_of(i));
        bool is_there = stat(path, &status) == 0 || errno != ENOENT;
        /* Where it cannot be asked, it is covered. */
        if (is_there && (errno == EACCES || (status.st_mode & (S_IROTH | S_IWOTH))))
            covers |= 1ULL << i;
    }
    return covers;
}

/* What is not there, though it was asked for, needs no cover. */
static bool cover(size_t number, struct error *err)
{
    bool is_file = number < COUNT(FILES);
    const char *with = is_file ? "../../" STAGE_NULL : "../../" STAGE_NOTHING;
    if (mount(with, name_of(number), NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
        return error_set_errno(err, ERROR_INTERNAL, "cover /proc/%s", name_of(number));
    return true;
}

/* System V memory goes with the last process that has it: else it could fill the sandbox with nobody to kill for it.
 * The setting is the ipc namespace's own; it may be written from inside since Linux 5.19, before that it is left. */
static void end_orphaned_memory(void)
{
    AUTO_FD int fd = open("sys/kernel/shm_rmid_forced", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, "1", 1);
}

bool proc_make(uint64_t covers, struct error *err)
{
    const unsigned long silent = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount("proc", STAGE_NEW "/proc", "proc", silent, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL,
                               "mount /proc (a host /proc that is partly covered, as in many containers, forbids it)");
    if (chdir(STAGE_NEW "/proc") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chdir to /proc");
    end_orphaned_memory();
    for (size_t i = 0; i < COUNT(FILES) + COUNT(FOLDERS); i++) {
        if ((covers >> i & 1) && !cover(i, err))
            return false;
    }
    if (mount("sys", "sys", NULL, MS_BIND | MS_REC, NULL) < 0 ||
        mount(NULL, "sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | silent, NULL) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make /proc/sys read-only");
    return chdir("../..") == 0 || error_set_errno(err, ERROR_INTERNAL, "leave /proc");
}
