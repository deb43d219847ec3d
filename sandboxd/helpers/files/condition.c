/* condition.c - If-Match and If-None-Match, and the lock that keeps two who ask them apart. */
#include "sandboxd/helpers/files/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/time.h>

bool condition_check(const struct files_request *request, const struct place *place, struct stat *status,
                     struct error *err)
{
    struct stat got = {0};
    if (fstatat(place->folder, place->name, &got, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return fail_errno(err, "stat");
        got = (struct stat){0};
    }
    bool is_there = got.st_mode != 0;
    if ((request->flags & FILES_IF_NONE) && is_there)
        return error_set(err, ERROR_PRECONDITION, "it is there already");
    if ((request->flags & (FILES_IF_MATCH | FILES_IF_ANY)) && !is_there)
        return error_set(err, ERROR_PRECONDITION, "it is not there");
    struct files_version version = version_of(&got);
    if ((request->flags & FILES_IF_MATCH) && !(request->flags & FILES_IF_ANY) &&
        !is_same_version(&version, &request->match))
        return error_set(err, ERROR_PRECONDITION, "it has changed");
    *status = got;
    return true;
}

static void on_alarm(int number)
{
    (void)number;
}

/* flock(2) that a timer interrupts; the timer repeats, for the first may come before flock waits. */
static bool lock_for_a_second(int fd)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval second = {.it_value = {.tv_sec = 1}, .it_interval = {.tv_usec = 20000}};
    const struct itimerval none = {0};
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (errno != EWOULDBLOCK || sigaction(SIGALRM, &action, NULL) < 0 || setitimer(ITIMER_REAL, &second, NULL) < 0)
        return false;
    bool is_locked = flock(fd, LOCK_EX) == 0;
    setitimer(ITIMER_REAL, &none, NULL);
    return is_locked;
}

int condition_lock(const struct helper *helper, const struct place *place, struct error *err)
{
    /* flock(2) wants more than O_PATH. A folder that cannot be read cannot be locked; rename stays atomic. */
    AUTO_FD int fd = openat(place->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    bool is_locked = lock_for_a_second(fd);
    if (!helper_is_wanted(helper, err))
        return -1;
    if (is_locked)
        return TAKE_FD(fd);
    if (helper->request->flags & (FILES_IF_MATCH | FILES_IF_ANY | FILES_IF_NONE))
        error_set(err, ERROR_CONFLICT, "the folder is locked by somebody else");
    return -1;
}
