/* cffi's generated code includes it to learn whether this is a debug build of Python, which uses
 * another ABI. libvgpu/_native.abi3.so is built for the stable one. */
