/** nft.h - the firewall of a network namespace, by libnftables. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/base/text.h"

#include <stdbool.h>

struct nft;

/** For the namespace that the thread is in now, wherever it is later. Keeps the namespace alive; made once for each,
 *  for the end of one waits for what the kernel still takes away (8 to 16 ms). The caller owns it. */
struct nft *nft_new(struct error *err) MUST_USE;
/** NULL is allowed. */
void nft_free(struct nft *nft);
DEFINE_AUTO(nft)

/** Applies `commands` (nft(8)) as one transaction, all of it or nothing, and empties the text. ERROR_INTERNAL with the
 *  first line of what the library says. */
bool nft_run(struct nft *nft, struct text *commands, struct error *err) MUST_USE;
