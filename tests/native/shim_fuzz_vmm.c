/* Memory by handle, multicast objects, and memory of other interfaces. */
#include <sys/mman.h>
#include <unistd.h>

#include "shim_fuzz.h"

#define ROOM 16 /* granules of addresses */

static CUmemGenericAllocationHandle handles[10]; /* released ones stand on */
static CUmemGenericAllocationHandle teams[3];
static CUdeviceptr room;
static CUexternalMemory externals[4];
static CUmemGenericAllocationHandle kept; /* what is exported to it */

CUmemGenericAllocationHandle vmm_any(void)
{
    return one_in(20) ? UNTOUCHED : one_in(20) ? *ANY(teams) : *ANY(handles);
}

static CUdeviceptr place(void)
{
    if (room == 0)
        SAY(cuMemAddressReserve(&room, ROOM * GRANULE, 0, 0, 0));
    return one_in(20) ? memory_any() : room + roll(ROOM) * GRANULE + (one_in(20) ? 4096 : 0);
}

static size_t bytes(void)
{
    return one_in(10) ? fuzz_bytes(4 * GRANULE) : (1 + roll(3)) * GRANULE;
}

static void put(int result, const CUmemGenericAllocationHandle *handle)
{
    CUmemGenericAllocationHandle *at = ANY(handles);
    fuzz_untouched(result, *handle);
    if (result != CUDA_SUCCESS)
        return;
    if (*at != 0 && one_in(2))
        SAY(cuMemRelease(*at));
    *at = *handle;
}

static void create(void)
{
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            one_in(2) ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)}};
    CUmemGenericAllocationHandle made = UNTOUCHED;
    if (one_in(10))
        wanted.location.type = (CUmemLocationType)roll(9);
    if (one_in(12))
        wanted.location.id = 5 + (int)roll(4);
    put(SAY(cuMemCreate(one_in(30) ? NULL : &made, bytes(), one_in(30) ? NULL : &wanted,
                        one_in(20))),
        &made);
}

static void export_to_itself(void)
{
    int descriptor = -1;
    CUmemGenericAllocationHandle again = UNTOUCHED;
    if (SAY(cuMemExportToShareableHandle(
            &descriptor, vmm_any(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)) != CUDA_SUCCESS)
        return;
    put(SAY(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)descriptor,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)),
        &again);
    close(descriptor);
}

/* ---- multicast ---- */

static void make_team(void)
{
    CUmulticastObjectProp wanted = {.numDevices = 1 + (unsigned int)roll(2), .size = bytes()};
    CUmemGenericAllocationHandle made = UNTOUCHED, *at = ANY(teams);
    int result = SAY(cuMulticastCreate(&made, &wanted));
    KEEP(result, made, at, cuMemRelease);
    for (unsigned int i = 0; result == CUDA_SUCCESS && i < wanted.numDevices; i++)
        SAY(cuMulticastAddDevice(made, (CUdevice)i));
}

static void team_step(void)
{
    CUmemGenericAllocationHandle team = one_in(20) ? vmm_any() : *ANY(teams);
    switch (roll(6)) {
    case 0:
        make_team();
        return;
    case 1 ... 2:
        SAY(cuMulticastBindMem(team, roll(3) * GRANULE, vmm_any(), roll(2) * GRANULE, bytes(), 0));
        return;
    case 3:
        SAY(cuMulticastBindAddr(team, roll(3) * GRANULE, place(), bytes(), 0));
        return;
    case 4:
        SAY(cuMemMap(place(), bytes(), 0, team, 0));
        return;
    default:
        SAY(cuMulticastUnbind(team, (CUdevice)roll(GPUS), roll(3) * GRANULE, bytes()));
    }
}

/* ---- memory of other interfaces ---- */

/* Memory whose handle nobody else knows, and which is given back at once: the simulated driver
 * counts its references together with those of imports, so one release too many would end these. */
static bool export_new(int *descriptor)
{
    CUmemAllocationProp wanted = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)roll(GPUS)}};
    if (SAY(cuMemCreate(&kept, GRANULE, &wanted, 0)) != CUDA_SUCCESS)
        return false;
    if (SAY(cuMemExportToShareableHandle(descriptor, kept, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         0)) == CUDA_SUCCESS)
        return true;
    SAY(cuMemRelease(kept));
    return false;
}

static void import_external(void)
{
    size_t size = 1 + roll(3 * GRANULE);
    CUexternalMemory made = (CUexternalMemory)UNTOUCHED, *at = ANY(externals);
    int descriptor = -1;
    bool is_ours = one_in(3);
    if (*at != NULL)
        return;
    if (is_ours && !export_new(&descriptor))
        return;
    if (!is_ours) {
        descriptor = memfd_create("other interface", 0);
        if (ftruncate(descriptor, (off_t)size) != 0)
            fuzz_fail("no file");
    }
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = {
        .type = one_in(15) ? CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP
                           : CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        .handle.fd = one_in(15) ? 987 : descriptor,
        .size = one_in(10) ? fuzz_bytes(3 * GRANULE)
                : is_ours  ? GRANULE
                           : size};
    int result =
        SAY(cuImportExternalMemory(one_in(30) ? NULL : &made, one_in(30) ? NULL : &wanted));
    fuzz_untouched(result, (uint64_t)(uintptr_t)made);
    if (result == CUDA_SUCCESS)
        *at = made; /* which owns the descriptor now */
    else
        close(descriptor);
    if (is_ours)
        SAY(cuMemRelease(kept));
}

static void use_external(void)
{
    CUexternalMemory *external = ANY(externals);
    CUdeviceptr address = UNTOUCHED;
    CUmipmappedArray levels;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {.offset = roll(3) * 65536,
                                             .size = fuzz_bytes(GRANULE)};
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC mipmap = {
        .arrayDesc = {.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1},
        .numLevels = 2};
    if (*external == NULL)
        return;
    switch (roll(4)) {
    case 0:
        if (SAY(cuExternalMemoryGetMappedBuffer(&address, *external, &part)) == CUDA_SUCCESS &&
            one_in(2))
            SAY(cuMemFree_v2(address));
        return;
    case 1:
        if (SAY(cuExternalMemoryGetMappedMipmappedArray(&levels, *external, &mipmap)) ==
                CUDA_SUCCESS &&
            one_in(2))
            SAY(cuMipmappedArrayDestroy(levels));
        return;
    default:
        if (SAY(cuDestroyExternalMemory(*external)) == CUDA_SUCCESS)
            *external = NULL;
    }
}

void vmm_step(void)
{
    CUmemGenericAllocationHandle found = UNTOUCHED;
    switch (roll(16)) {
    case 0 ... 2:
        create();
        return;
    case 3 ... 5:
        SAY(cuMemMap(place(), bytes(), one_in(8) ? GRANULE : 0, vmm_any(), 0));
        return;
    case 6 ... 7:
        SAY(cuMemUnmap(place(), bytes()));
        return;
    case 8 ... 9:
        SAY(cuMemRelease(vmm_any()));
        return;
    case 10:
        put(SAY(cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)place())), &found);
        return;
    case 11:
        export_to_itself();
        return;
    case 12 ... 13:
        team_step();
        return;
    default:
        if (one_in(2))
            import_external();
        else
            use_external();
    }
}

void vmm_rest(void)
{
}
