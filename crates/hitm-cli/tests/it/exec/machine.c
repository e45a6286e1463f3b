/* What the system's files tell about the CPUs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print(const char *path) {
    char text[256] = "nothing";
    FILE *file = fopen(path, "r");
    if (file) {
        if (!fgets(text, sizeof text, file))
            strcpy(text, "no line");
        fclose(file);
    }
    printf("%s: %s\n", path, strtok(text, "\n"));
}

static int lines_with(const char *path, const char *begin, char *last) {
    char line[1024];
    int found = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, begin, strlen(begin))) {
            found++;
            strcpy(last, line);
        }
    if (file)
        fclose(file);
    return found;
}

int main(void) {
    print("/sys/devices/system/cpu/present");
    print("/sys/devices/system/cpu/cpu7/topology/core_cpus_list");
    print("/sys/devices/system/cpu/cpu7/topology/package_cpus");
    print("/sys/devices/system/cpu/cpu7/cache/index3/shared_cpu_list");
    print("/sys/devices/system/cpu/cpu8/topology/core_id");
    print("/sys/devices/system/node/online");
    print("/sys/devices/system/node/node1/cpulist");
    print("/sys/devices/system/node/node0/distance");
    print("/proc/self/cgroup");
    int folders = 0;
    DIR *folder = opendir("/sys/devices/system/cpu");
    for (struct dirent *entry; (entry = readdir(folder));)
        folders += !strncmp(entry->d_name, "cpu", 3) && entry->d_name[3] >= '0' && entry->d_name[3] <= '9';
    closedir(folder);
    struct stat state;
    int seven = stat("/sys/devices/system/cpu/cpu7", &state) == 0 && S_ISDIR(state.st_mode);
    int eight = access("/sys/devices/system/cpu/cpu8", F_OK) == 0;
    printf("folders %d, 7 %d, 8 %d\n", folders, seven, eight);
    char line[1024] = "";
    int processors = lines_with("/proc/cpuinfo", "processor", line);
    printf("processors %d\n", processors);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(1, &set);
    CPU_SET(2, &set);
    CPU_SET(5, &set);
    sched_setaffinity(0, sizeof set, &set);
    lines_with("/proc/self/status", "Cpus_allowed_list:", line);
    printf("%s", line);
    return 0;
}
