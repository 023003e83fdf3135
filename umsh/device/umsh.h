/* umsh.h beside umsh.clh, so that umsh.get_include() names one folder for both. */
#include "../native/umsh.h"
