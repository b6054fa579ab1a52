/* Twins of entry points for programs whose default stream is per thread. An area's twins stand at
 * the end of its file; those of the first areas are in twins.c. */
#ifndef VGPU_SIM_TWINS_H
#define VGPU_SIM_TWINS_H

#define OWN(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
#define TWIN(name, parameters, arguments) \
    CUresult name parameters \
    { \
        return arguments; \
    }

#endif
