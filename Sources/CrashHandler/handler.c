#include "guardian_ring.h"
