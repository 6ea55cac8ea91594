/* Includes only lazyck.h, for builds that must not see the runtime's other headers beside it. */
#include "../../runtime/src/lazyck.h"
