/* hostile_preload.c - loaded by LD_PRELOAD into a launcher under test, and so into what it starts as its front: there,
 * when HOSTILE_FOLDER/attack is there, it becomes hostile-front. parley-sandboxd itself has no door for that. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void take_its_place(void)
{
    char taken[512], from[512];
    char *folder = getenv("HOSTILE_FOLDER"), *program = getenv("HOSTILE_FRONT");
    if (getenv("PARLEY_FRONT_FD") == NULL || folder == NULL || program == NULL)
        return;
    (void)snprintf(from, sizeof from, "%s/attack", folder);
    (void)snprintf(taken, sizeof taken, "%s/attack.taken", folder);
    if (rename(from, taken) < 0)
        return;
    unsetenv("LD_PRELOAD");
    execl(program, "hostile-front", folder, (char *)NULL);
    _exit(3);
}
