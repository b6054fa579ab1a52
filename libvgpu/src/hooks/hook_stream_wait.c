/* Hooks of what a stream waits for besides the GPU's work: functions of the host, words of memory,
 * semaphores of other interfaces. The GPU idles meanwhile, or does something else, and what follows in the
 * stream would be measured with that; so each ends the open measurement first. Words that a stream only
 * writes keep nobody waiting. */
#include "hooks/hook_measurement.h"

#define WITH_TWIN(symbol, arguments, values) \
    ENDS_MEASUREMENT(symbol, arguments, values) \
    ENDS_MEASUREMENT(symbol##_ptsz, arguments, values)

WITH_TWIN(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *argument),
          (stream, function, argument))
WITH_TWIN(cuLaunchHostFunc_v2,
          (CUstream stream, CUhostFn function, void *argument, unsigned int mode),
          (stream, function, argument, mode))
WITH_TWIN(cuStreamAddCallback,
          (CUstream stream, CUstreamCallback function, void *argument, unsigned int flags),
          (stream, function, argument, flags))

#define WORD(type) (CUstream stream, CUdeviceptr address, type value, unsigned int flags)
#define WORD_VALUES (stream, address, value, flags)

WITH_TWIN(cuStreamWaitValue32, WORD(cuuint32_t), WORD_VALUES)
WITH_TWIN(cuStreamWaitValue32_v2, WORD(cuuint32_t), WORD_VALUES)
WITH_TWIN(cuStreamWaitValue64, WORD(cuuint64_t), WORD_VALUES)
WITH_TWIN(cuStreamWaitValue64_v2, WORD(cuuint64_t), WORD_VALUES)

#define BATCH \
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *operations, unsigned int flags)
#define BATCH_VALUES (stream, count, operations, flags)

WITH_TWIN(cuStreamBatchMemOp, BATCH, BATCH_VALUES)
WITH_TWIN(cuStreamBatchMemOp_v2, BATCH, BATCH_VALUES)

WITH_TWIN(cuWaitExternalSemaphoresAsync,
          (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *waits,
           unsigned int count, CUstream stream),
          (semaphores, waits, count, stream))
