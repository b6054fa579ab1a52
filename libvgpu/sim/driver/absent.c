/* The entry points that this driver does not do, as symbols: one function under all their names.
 * (No declarations are included: the names would come with the prototypes they ought to have.) */

#define RESULT_NOT_SUPPORTED 801

int driver_absent_entry(void);

int driver_absent_entry(void)
{
    return RESULT_NOT_SUPPORTED;
}

#define ABSENT(symbol) \
    __attribute__((visibility("default"), alias("driver_absent_entry"))) int symbol(void);
#include "absent.def"
