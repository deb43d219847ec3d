#include "negotiator/leasing/intake.h"
