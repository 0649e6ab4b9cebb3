/* A stand-in for libnvidia-ml.so.1 with as many GPUs as a test wants; the real binding is tested against it.
 *
 * STAND_IN_GPUS    how many GPUs (2)
 * STAND_IN_INIT    what nvmlInitWithFlags returns (0)
 * STAND_IN_FAIL    "name=code,name=code": what functions return instead of success
 * STAND_IN_LOST    the GPU that is lost from the fourth question about its utilisation on
 * STAND_IN_MIG     the GPU that is cut into slices
 * The signatures are those of https://docs.nvidia.com/deploy/nvml-api. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, IS_LOST = 15 };

typedef struct { int number, slice, questions; } Device;
static Device devices[8], slices[8];

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* What a function is told to return by STAND_IN_FAIL. */
static int failure(const char *function) {
    const char *text = getenv("STAND_IN_FAIL");
    size_t length = strlen(function);
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, function, length) && at[length] == '=') return atoi(at + length + 1);
    return SUCCESS;
}

static int answer(const char *function, Device *device) {
    if (device && device->questions >= 4 && device->number == setting("STAND_IN_LOST", -1)) return IS_LOST;
    return failure(function);
}

static int cut(Device *device) { return device->number == setting("STAND_IN_MIG", -1); }

#define ANSWER(device) do { int code = answer(__func__, device); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned flags) { return setting("STAND_IN_INIT", SUCCESS); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return "an error of the stand-in"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ANSWER(NULL);
    snprintf(text, size, "999.1");
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion(int *version) { ANSWER(NULL); *version = 12040; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { ANSWER(NULL); *count = setting("STAND_IN_GPUS", 2); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    char name[64];
    snprintf(name, sizeof name, "handle%u", index);
    int code = failure(name);
    if (code) return code;
    devices[index].number = index;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    unsigned index;
    if (sscanf(uuid, "MIG-0000%u", &index) != 1) return NOT_FOUND;
    slices[index].number = index;
    slices[index].slice = 1;
    *device = &slices[index];
    return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *slice, Device **device) {
    *device = &devices[slice->number];
    return SUCCESS;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    ANSWER(device);
    *current = *pending = cut(device);
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    ANSWER(device);
    snprintf(text, size, "Stand-In %d", device->number);
    return SUCCESS;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    ANSWER(device);
    snprintf(text, size, "GPU-%d%d%d%d-1234", device->number, device->number, device->number, device->number);
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *use) {
    device->questions++;
    ANSWER(device);
    if (cut(device)) return NOT_SUPPORTED;
    use->gpu = 40 + device->number;
    use->memory = 10;
    return SUCCESS;
}
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    ANSWER(device);
    memory->total = 80ull << 30;
    memory->used = (1ull << 30) * (device->number + 1);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    ANSWER(device);
    *milliwatts = 350500;
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
    ANSWER(device);
    *milliwatts = 700000;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    ANSWER(device);
    if (sensor) return INVALID_ARGUMENT;
    *celsius = 64;
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *megahertz) {
    ANSWER(device);
    *megahertz = kind == 1 ? 1410 : kind == 2 ? 2619 : 0;
    return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *megahertz) {
    ANSWER(device);
    *megahertz = kind == 1 ? 1980 : 2619;
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    ANSWER(device);
    *major = 9;
    *minor = 0;
    return SUCCESS;
}
#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *reasons) {
#endif
    ANSWER(device);
    *reasons = setting("STAND_IN_REASONS", 0);
    return SUCCESS;
}

#ifdef OLD_DRIVER
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *count, Process *processes) {
#else
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
#endif
    ANSWER(device);
    unsigned room = *count;
    *count = 2;
    if (room < 2) return INSUFFICIENT_SIZE;
    processes[0] = (Process){4242, 5ull << 30, 0, 0};
    processes[1] = (Process){4343, ~0ull, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Device *device, int counter, unsigned *kilobytes) {
    ANSWER(device);
    *kilobytes = counter ? 2000 : 1000;
    return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned *value) { ANSWER(device); *value = 4; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, unsigned *value) { ANSWER(device); *value = 5; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *value) { ANSWER(device); *value = 8; return SUCCESS; }
#ifndef OLD_DRIVER
int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *value) { ANSWER(device); *value = 16; return SUCCESS; }
#endif
