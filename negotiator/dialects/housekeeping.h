/** housekeeping.h - how full the ledger is, looked at every half minute. Private to this folder. */
#pragma once

#define HOUSEKEEPING_EVERY_S      30
#define HOUSEKEEPING_WARN_PERCENT 80 /* of map_mb: told in the log */
#define HOUSEKEEPING_FULL_PERCENT 95 /* of map_mb: /readyz says no */
