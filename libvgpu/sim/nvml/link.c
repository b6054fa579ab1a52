/*
 * How the devices are connected: NVLink between the SXM GPUs of one model, as on NVIDIA's boards.
 * Up to four are joined directly, each pair by the same number of links; from five on every link
 * goes to an NVSwitch. Peer access goes as cuDeviceCanAccessPeer says: between GPUs of one
 * architecture. Nothing is sent over a link, so there are no errors either.
 */
#include <stddef.h>
#include <string.h>

#include "nvml.h"

#define MOST_DIRECT_PEERS 3
#define PCI_DEVICE_SHIFT 16
/* Where NVSwitches stand on the bus: behind any GPU. Number and identity are of the A100's time. */
#define SWITCH_COUNT 6
#define FIRST_SWITCH_BUS 0xc0
#define SWITCH_PCI_ID 0x1af110deu

struct link_model {
    uint32_t pci_device; /* of the profile */
    unsigned int links;
    unsigned int version;              /* number of NVLink's version in NVML: 4 is 3.0, 6 is 4.0 */
    unsigned int megabytes_per_second; /* of one link, as nvidia-smi shows it */
};

/* By the data sheets: 600 GB/s are 12 links of NVLink 3.0, 900 GB/s are 18 of 4.0. */
static const struct link_model *model_of(nvmlDevice_t device)
{
    static const struct link_model models[] = {{0x20b0, 12, 4, 25000},
                                               {0x20b2, 12, 4, 25000},
                                               {0x2330, 18, 6, 26562},
                                               {0x2335, 18, 6, 26562}};
    uint32_t pci_device = nvml_profile_of(device)->pci_device_id >> PCI_DEVICE_SHIFT;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (models[i].pci_device == pci_device)
            return &models[i];
    return NULL;
}

static const struct sim_device_identity *identity_at(uint32_t machine_index)
{
    return &sim_machine_device(nvml.machine, machine_index)->header->identity;
}

/* What is at the other end of a link. */
struct link_end {
    bool active;
    bool is_switch;
    unsigned int bus;
    uint32_t pci_id;
};

static struct link_end end_of(nvmlDevice_t device, const struct link_model *model,
                              unsigned int link)
{
    uint32_t peers[SIM_MAX_GPUS], peer_count = 0;
    uint32_t own_id = nvml_profile_of(device)->pci_device_id;
    for (uint32_t i = 0; i < sim_machine_gpu_count(nvml.machine); i++)
        if (i != device->machine_index && identity_at(i)->profile.pci_device_id == own_id)
            peers[peer_count++] = i;
    if (peer_count == 0)
        return (struct link_end){.active = false};
    if (peer_count > MOST_DIRECT_PEERS)
        return (struct link_end){.active = true,
                                 .is_switch = true,
                                 .bus = FIRST_SWITCH_BUS + link % SWITCH_COUNT,
                                 .pci_id = SWITCH_PCI_ID};
    unsigned int links_a_peer = model->links / peer_count;
    return (struct link_end){
        .active = true, .bus = identity_at(peers[link / links_a_peer])->pci_bus, .pci_id = own_id};
}

static nvmlReturn_t check_link(nvmlDevice_t device, unsigned int link, const void *result,
                               const struct link_model **model)
{
    NVML_CHECK(device, result);
    *model = model_of(device);
    REFUSE_IF(!*model, NVML_ERROR_NOT_SUPPORTED);
    return link < (*model)->links ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

#define LINK_CHECK(device, link, result) \
    const struct link_model *model; \
    CHECK(check_link(device, link, result, &model))

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *active)
{
    LINK_CHECK(device, link, active);
    *active = end_of(device, model, link).active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version)
{
    LINK_CHECK(device, link, version);
    *version = model->version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                           nvmlNvLinkCapability_t capability, unsigned int *result)
{
    LINK_CHECK(device, link, result);
    INVALID_IF((unsigned int)capability > NVML_NVLINK_CAP_VALID);
    *result = capability == NVML_NVLINK_CAP_P2P_SUPPORTED ||
              capability == NVML_NVLINK_CAP_P2P_ATOMICS || capability == NVML_NVLINK_CAP_VALID;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t *pci)
{
    LINK_CHECK(device, link, pci);
    struct link_end end = end_of(device, model, link);
    /* not documented for a link without another end */
    REFUSE_IF(!end.active, NVML_ERROR_NOT_SUPPORTED);
    nvml_fill_pci(pci, end.bus, end.pci_id);
    return NVML_SUCCESS;
}

/* Called with the structure of that time, which ends before the long bus ID. */
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                              nvmlPciInfo_t *pci)
{
    nvmlPciInfo_t whole;
    NVML_CHECK(device, pci);
    CHECK(nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &whole));
    memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *type)
{
    LINK_CHECK(device, link, type);
    struct link_end end = end_of(device, model, link);
    REFUSE_IF(!end.active, NVML_ERROR_NOT_SUPPORTED);
    *type = end.is_switch ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                             nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *errors)
{
    LINK_CHECK(device, link, errors);
    INVALID_IF((unsigned int)counter > NVML_NVLINK_ERROR_DL_ECC_DATA);
    *errors = 0;
    return NVML_SUCCESS;
}

unsigned int nvml_link_count(nvmlDevice_t device)
{
    return model_of(device) ? model_of(device)->links : 0;
}

unsigned int nvml_link_megabytes_per_second(nvmlDevice_t device)
{
    return model_of(device) ? model_of(device)->megabytes_per_second : 0;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other,
                                    nvmlGpuP2PCapsIndex_t capability, nvmlGpuP2PStatus_t *status)
{
    NVML_CHECK(one, status);
    NVML_CHECK(other, status);
    INVALID_IF((unsigned int)capability > NVML_P2P_CAPS_INDEX_PCI);
    const struct sim_profile *left = nvml_profile_of(one), *right = nvml_profile_of(other);
    bool same_architecture =
        left->compute_major == right->compute_major && left->compute_minor == right->compute_minor;
    bool linked = left->pci_device_id == right->pci_device_id && model_of(one);
    bool over_links =
        capability == NVML_P2P_CAPS_INDEX_NVLINK || capability == NVML_P2P_CAPS_INDEX_ATOMICS;
    *status = !same_architecture      ? NVML_P2P_STATUS_GPU_NOT_SUPPORTED
              : over_links && !linked ? NVML_P2P_STATUS_NOT_SUPPORTED
                                      : NVML_P2P_STATUS_OK; /* a GPU and itself, too: our choice */
    return NVML_SUCCESS;
}
