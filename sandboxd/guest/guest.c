#include "sandboxd/guest/guest.h"

#include "sandboxd/launcher_guest/letter.h"
#include "shared/base/log.h"

int guest_main(const struct settings *settings UNUSED, const struct guest_options *options, char *const argv[] UNUSED)
{
    struct error err = {0};
    AUTO_LETTER letter = {0};
    keys_start();
    if (options->letter < 0)
        error_set(&err, ERROR_INVALID, "--guest needs --guest-letter FD: the descriptor that says which sandbox it is");
    else if (letter_read(options->letter, &letter, &err))
        error_set(&err, ERROR_INTERNAL, "guest mode is not there yet");
    log_error("guest", "%s", err.message);
    return 1;
}
