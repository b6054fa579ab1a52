/* Operations on words of memory, as streams and graphs do them (memory_operation.c). */
#ifndef VGPU_SIM_MEMORY_OPERATION_H
#define VGPU_SIM_MEMORY_OPERATION_H

#include "driver.h"

#define MEMORY_OPERATIONS_MOST 256 /* in one batch, as documented for cuStreamBatchMemOp */

CUresult memory_operations_check(const CUstreamBatchMemOpParams *operations, unsigned int count);
/* Does them one after another; a wait may block for long. */
void memory_operations_run(const CUstreamBatchMemOpParams *operations, unsigned int count);

#endif
