/* A stand-in for libnvidia-ml.so.1 with as many GPUs as a test wants; the real binding is tested against it.
 *
 * STAND_IN_GPUS    how many GPUs (2)
 * STAND_IN_INIT    what nvmlInitWithFlags returns (0)
 * STAND_IN_FAIL    "name=code,name=code": what functions return instead of success
 * STAND_IN_LOST    the GPU that is lost from the fourth question about its utilisation, or the third GPM reading, on
 * STAND_IN_MIG     the GPU that is cut into slices (two; named MIG-0000N and MIG-1000N of GPU N)
 * STAND_IN_KINDS   1 when each GPU has a name of its own
 * STAND_IN_PIDS    "pid,pid": the processes on each GPU; the last one's memory is not known
 * STAND_IN_GPM     1 when the GPUs have GPM
 * STAND_IN_LACKS   the GPM metric or the field that no GPU has
 * STAND_IN_XID     the Xid of which each GPU tells once
 * STAND_IN_SAMPLES how many samples NVML itself has taken since the last time, a microsecond apart
 * STAND_IN_SLOW    "name=microseconds,…": how much processor time functions take
 * STAND_IN_SHARE   the utilisation in them (50, and one more each second time)
 * The signatures are those of https://docs.nvidia.com/deploy/nvml-api. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10,
       IS_LOST = 15 };

typedef struct { int number, slice, questions, readings, told, asked; } Device;
static Device devices[8], slices[16];

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

/* The number that a list of "name=number" has for a function. */
static int number(const char *list, const char *function) {
    const char *text = getenv(list);
    size_t length = strlen(function);
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, function, length) && at[length] == '=') return atoi(at + length + 1);
    return 0;
}

static long long spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

static int failure(const char *function) {
    long long end = spent() + number("STAND_IN_SLOW", function);
    while (spent() < end) continue;
    return number("STAND_IN_FAIL", function);
}

static int answer(const char *function, Device *device) {
    int gone = device && (device->questions >= 4 || device->readings >= 3);
    if (gone && device->number == setting("STAND_IN_LOST", -1)) return IS_LOST;
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

static Device *slice(int number, int index) {
    Device *found = &slices[2 * number + index];
    found->number = number;
    found->slice = index + 1;
    return found;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    unsigned index, number;
    if (sscanf(uuid, "MIG-%1u%4u", &index, &number) != 2) return NOT_FOUND;
    *device = slice(number, index);
    return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *part, Device **device) {
    *device = &devices[part->number];
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { *count = 7; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **part) {
    if (index > 1) return NOT_FOUND;
    *part = slice(device->number, index);
    return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *number) { *number = 6 + device->slice; return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *number) { *number = 0; return SUCCESS; }
typedef struct { unsigned processors, engines[5], slices[2]; unsigned long long megabytes; } Attributes;
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    if (!device->slice) return NOT_SUPPORTED;
    attributes->processors = 16;
    attributes->megabytes = 9856;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    ANSWER(device);
    *current = *pending = cut(device);
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    ANSWER(device);
    int kind = setting("STAND_IN_KINDS", 0) ? device->number : 0;
    snprintf(text, size, device->slice ? "Stand-In %d MIG 1g.10gb" : "Stand-In %d", kind);
    return SUCCESS;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    ANSWER(device);
    if (device->slice) snprintf(text, size, "MIG-%d%04d", device->slice - 1, device->number);
    else snprintf(text, size, "GPU-%d%d%d%d-1234", device->number, device->number, device->number, device->number);
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
    memory->used = (1ull << 30) * (device->number + 1) / (device->slice ? 2 : 1);
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
    const char *text = getenv("STAND_IN_PIDS");
    unsigned room = *count, pids[8];
    *count = sscanf(text ? text : "4000000,4000001", "%u,%u,%u", &pids[0], &pids[1], &pids[2]);
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        processes[i] = (Process){pids[i], i + 1 < *count ? 5ull << 30 : ~0ull, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(Device *device, int counter, unsigned *kilobytes) {
    ANSWER(device);
    if (setting("STAND_IN_GPM", 0)) return INVALID_ARGUMENT; /* nobody should ask */
    *kilobytes = counter ? 2000 : 1000;
    return SUCCESS;
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned *value) { ANSWER(device); *value = 4; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, unsigned *value) { ANSWER(device); *value = 5; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *value) { ANSWER(device); *value = 8; return SUCCESS; }
#ifndef OLD_DRIVER
int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *value) { ANSWER(device); *value = 16; return SUCCESS; }
#endif

int nvmlDeviceGetPowerManagementDefaultLimit(Device *device, unsigned *milliwatts) {
    ANSWER(device);
    *milliwatts = 750000;
    return SUCCESS;
}
int nvmlDeviceGetTemperatureThreshold(Device *device, int which, unsigned *celsius) {
    ANSWER(device);
    if (which > 3) return INVALID_ARGUMENT;
    *celsius = 90 + which;
    return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    ANSWER(device);
    *millijoules = 1234500;
    return SUCCESS;
}
int nvmlDeviceGetEccMode(Device *device, unsigned *current, unsigned *pending) {
    ANSWER(device);
    *current = *pending = 1;
    return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(Device *device, int kind, int counter, unsigned long long *count) {
    ANSWER(device);
    *count = kind ? 0 : 3 + device->asked++ / 2; /* one more each second time */
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    ANSWER(device);
    *corrected = 2;
    *uncorrected = 1;
    *pending = *failed = 0;
    return SUCCESS;
}
int nvmlDeviceGetPcieReplayCounter(Device *device, unsigned *count) { ANSWER(device); *count = 5; return SUCCESS; }

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *state) {
    ANSWER(device);
    if (link >= 4) return INVALID_ARGUMENT;
    *state = link != 3;
    return SUCCESS;
}

typedef union { double real; unsigned small; unsigned long long large; } Value;
typedef struct { unsigned field, scope; long long time, latency; unsigned type, code; Value value; } Field;
#ifndef OLD_DRIVER
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    ANSWER(device);
    device->told += count > 1;
    for (int i = 0; i < count; i++) {
        fields[i].code = fields[i].field == setting("STAND_IN_LACKS", 0) ? NOT_SUPPORTED : SUCCESS;
        fields[i].type = fields[i].field == 82 ? 1 : 3;
        fields[i].value.large = 0;
        if (fields[i].field == 82) fields[i].value.small = 71;
        if (fields[i].field == 138 && fields[i].scope == ~0u) fields[i].value.large = 1000 + 1024ull * device->told;
        if (fields[i].field == 139 && fields[i].scope == ~0u) fields[i].value.large = 2048ull * device->told;
        if (fields[i].field == 52) fields[i].value.large = device->told > 2; /* a replay before the third look */
    }
    return SUCCESS;
}
#endif

typedef struct { unsigned long long microsecond; Value value; } Sample;
int nvmlDeviceGetSamples(Device *device, int kind, unsigned long long since, unsigned *type, unsigned *count,
                         Sample *samples) {
    ANSWER(device);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long microsecond = now.tv_sec * 1000000ull + now.tv_nsec / 1000;
    unsigned wanted = setting("STAND_IN_SAMPLES", 0), room = *count;
    *type = 1;
    *count = wanted;
    if (!wanted) return NOT_FOUND;
    if (!samples) return SUCCESS;
    for (unsigned i = 0; i < wanted && i < room; i++) {
        samples[i].microsecond = microsecond - (wanted - 1 - i);
        samples[i].value.small = kind == 0 ? 300000 : setting("STAND_IN_SHARE", 50) + i % 2;
    }
    return SUCCESS;
}

#ifndef OLD_DRIVER
typedef struct { int number, slice, reading; } Reading;
typedef struct { unsigned metric, code; double value; const char *texts[3]; } Metric;
typedef struct { unsigned version, count; Reading *first, *second; Metric metrics[]; } Metrics;
typedef struct { unsigned version, supported; } Support;

int nvmlGpmQueryDeviceSupport(Device *device, Support *support) {
    ANSWER(device);
    support->supported = setting("STAND_IN_GPM", 0);
    return SUCCESS;
}
int nvmlGpmSampleAlloc(Reading **reading) { *reading = calloc(1, sizeof **reading); return SUCCESS; }
static int reading(Device *device, int part, Reading *taken) {
    *taken = (Reading){device->number, part, ++device->readings};
    return SUCCESS;
}
int nvmlGpmSampleGet(Device *device, Reading *taken) {
    ANSWER(device);
    return cut(device) ? NOT_SUPPORTED : reading(device, 0, taken);
}
int nvmlGpmMigSampleGet(Device *device, unsigned instance, Reading *taken) {
    ANSWER(device);
    return cut(device) ? reading(device, instance, taken) : INVALID_ARGUMENT;
}
/* A metric's value tells what it was asked for: its number, and tenths for the slice. */
int nvmlGpmMetricsGet(Metrics *request) {
    int code = failure(__func__);
    if (code) return code;
    if (request->version != 1 || request->first->number != request->second->number) return INVALID_ARGUMENT;
    if (request->first->reading >= request->second->reading) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < request->count; i++) {
        Metric *metric = &request->metrics[i];
        metric->code = metric->metric == setting("STAND_IN_LACKS", 0) ? NOT_SUPPORTED : SUCCESS;
        metric->value = metric->metric == 11 ? 0.0 / 0.0 : metric->metric + request->second->slice / 10.0;
    }
    return SUCCESS;
}
#endif

typedef struct { Device *device; unsigned long long type, data; unsigned instance, compute; } Event;
typedef struct { Device *device; } Queue;
int nvmlDeviceGetSupportedEventTypes(Device *device, unsigned long long *types) {
    ANSWER(device);
    *types = 0x1f;
    return SUCCESS;
}
int nvmlEventSetCreate(Queue **queue) { *queue = calloc(1, sizeof **queue); return failure(__func__); }
int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, Queue *queue) {
    ANSWER(device);
    if (types != 0xb) return INVALID_ARGUMENT;
    queue->device = device;
    return SUCCESS;
}
int nvmlEventSetWait_v2(Queue *queue, Event *event, unsigned milliseconds) {
    ANSWER(queue->device);
    static int told[8];
    int xid = setting("STAND_IN_XID", 0);
    if (milliseconds) return INVALID_ARGUMENT; /* nobody should wait */
    if (!xid || told[queue->device->number]++) return TIMEOUT;
    *event = (Event){queue->device, 8, xid, 0, 0};
    return SUCCESS;
}
