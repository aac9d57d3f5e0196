export type {
  PoolSimulator,
  SimulatedArrival,
  SimulatedNode,
  SimulationReport,
  SimulationRequest,
} from './capacity/simulator-port.ts';
export { loadtestCommand } from './cli/command.ts';
export { type LoadtestDeps, loadtestExitCodes } from './cli/context.ts';
export type { Result } from './record/result.ts';
export { type RunPlan, type RunPlanInput, runPlanSchema } from './run/plan.ts';
export { type RunHooks, run } from './run/runner.ts';
export {
  defineScenario,
  type RequestScenario,
  type Scenario,
  type Session,
  type SessionScenario,
} from './scenario/define.ts';
export { builtInScenarios, loadScenario } from './scenario/registry.ts';
