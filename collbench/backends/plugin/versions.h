/* Versions of NCCL, the network plugin and the driver in this process. */
#ifndef COLLBENCH_VERSIONS_H
#define COLLBENCH_VERSIONS_H

#include "table.h"

/* Fill in what is loaded here; an entry stays empty where it cannot be told. */
void cb_versions(char here[CB_MEASURED][CB_VERSION_CHARS]);

#endif
