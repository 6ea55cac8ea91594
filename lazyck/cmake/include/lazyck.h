/* For builds that must not see the runtime's other headers, which lie beside lazyck.h. */
#include "../../runtime/src/lazyck.h"
