/** Guest kernels and root file systems from Debian packages. */
export {
  createImageBuilder,
  type ImageBuilder,
  type ImageBuilderDeps,
  type ImageBuilderOptions,
  type KernelImage,
  type RootImage,
} from './image-builder.ts';
export { normaliseRecipe, type RootRecipe } from './recipe.ts';
export type { BuildProgress, FlightOptions, OnProgress } from './single-flight.ts';
export { guestUser } from './tree.ts';
