/** lines.h - some lines of a file (OPEN with FILES_LINES). */
#pragma once

#include "sandboxd/helpers/files/helper.h"

/** Sends request->size lines of `fd` from line request->offset on as DATA, parted by \n and each without its \n or
 * \r\n, however long they are; helper->count is how many there were. */
bool lines_send(struct helper *helper, int fd, struct error *err) MUST_USE;
