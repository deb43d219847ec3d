/** key_use.h - when keys were last used: noted in memory (principal.h), written to the ledger once a minute, and when
 *  the negotiator stops. Private to leasing. */
#pragma once

#include "negotiator/leasing/leasing.h"

/** From now on it is written every minute. Start-up. */
void key_use_start(struct leasing *leasing);
/** Writes what is not written yet. Any thread. */
void key_use_flush(struct leasing *leasing);
