/* hostile_preload.c - loaded by LD_PRELOAD into a launcher under test, and so into what it starts as its front: there,
 * when HOSTILE_FOLDER/attack is there, it becomes hostile-front;
 * as parley-egress and with HOSTILE_FOLDER/egress it becomes hostile-egress. parley-sandboxd itself has no door for
 * that. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Once for each FOLDER/what that there is. */
static void become(const char *what, const char *program, const char *name)
{
    char taken[512], from[512];
    const char *folder = getenv("HOSTILE_FOLDER");
    if (folder == NULL || program == NULL)
        return;
    (void)snprintf(from, sizeof from, "%s/%s", folder, what);
    (void)snprintf(taken, sizeof taken, "%s/%s.taken", folder, what);
    if (rename(from, taken) < 0)
        return;
    unsetenv("LD_PRELOAD");
    execl(program, name, folder, (char *)NULL);
    _exit(3);
}

__attribute__((constructor)) static void take_its_place(void)
{
    if (getenv("PARLEY_FRONT_FD") != NULL)
        become("attack", getenv("HOSTILE_FRONT"), "hostile-front");
    else if (getenv("PARLEY_EGRESS_FD") != NULL)
        become("egress", getenv("HOSTILE_EGRESS"), "hostile-egress");
}
