/* What leaves the library: everything else is hidden by -fvisibility=hidden. */
#ifndef VGPU_EXPORT_H
#define VGPU_EXPORT_H

#define VGPU_EXPORT __attribute__((visibility("default")))

#endif
