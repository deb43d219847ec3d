/* main.c - the program that starts the interpreters of a sandbox: static, so that it runs whatever the template holds.
 * LANGUAGE kernel [durable] LANGUAGE | LANGUAGE script PATH ARGUMENT... | python zygote contexts|scripts */
#include "sandboxd/helpers/drivers/drivers.h"
#include "sandboxd/helpers/drivers/host/host.h"
#include "sandboxd/helpers/drivers/host/languages.h"

#include <string.h>

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    const char *language = arguments[1], *mode = arguments[2];
    close(DRIVER_FD);
    if (strcmp(language, "python") == 0 && strcmp(mode, "zygote") == 0 && count == 4)
        return python_zygote(arguments[3]);
    bool is_bash = strcmp(language, "bash") == 0;
    if (strcmp(mode, "kernel") == 0)
        return is_bash ? bash_context(count > 3 && strcmp(arguments[3], "durable") == 0) : node_context(language);
    if (strcmp(mode, "script") == 0 && count > 3)
        return is_bash ? bash_script(arguments + 2) : node_script(language, arguments + 2);
    return 2;
}
