/* What lies beside the program that runs. */
#include "shared/base/program.h"

#include "tests/unit/check.h"

#include <string.h>
#include <unistd.h>

int main(int argc, char *argv[])
{
    const char *own = argc > 0 ? strrchr(argv[0], '/') : NULL;
    AUTO_FREE char *folder = program_folder();
    AUTO_FREE char *self = program_beside(own ? own + 1 : "");
    AUTO_FREE char *other = program_beside("of-no-program");
    CHECK(folder[0] == '/' && folder[strlen(folder) - 1] != '/' && access(folder, X_OK) == 0);
    CHECK(own && access(self, X_OK) == 0);
    CHECK(strncmp(other, folder, strlen(folder)) == 0 && strcmp(other + strlen(folder), "/of-no-program") == 0);
    CHECK(access(other, F_OK) < 0);
    return check_done();
}
