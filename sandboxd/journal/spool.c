#include "sandboxd/journal/spool.h"
