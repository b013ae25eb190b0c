// What is asked for. Fields that the client itself goes by are always among it.

export const JOB_FIELDS = `treeId parentId depth type queue key state phase wave attempt retryCount maxRetries childCount
  openChildren progress { current total message } error errorCode cancelCode cancelReason createdAt updatedAt startedAt
  finishedAt`

export const EVENT_FIELDS = 'kind treeId parentId type from to phase wave attempt version at actor reason'

export const jobDocument = (fields: string) =>
  `subscription ($id: ID!, $keepOpen: Boolean! = false) {
  job(id: $id, keepOpen: $keepOpen) { id version state ${fields} }
}`

export const eventsDocument = (fields: string) =>
  `subscription ($filter: JobEventFilter, $after: String) {
  jobEvents(filter: $filter, after: $after) { events { id jobId ${fields} } cursor caughtUp ended }
}`

export const treeDocument = (fields: string) =>
  `subscription ($id: ID!, $after: String) {
  jobTree(id: $id, after: $after) {
    reset jobs { id version ${fields} } removed
    counts { total open queued running waiting paused completed failed cancelled }
    cursor caughtUp ended
  }
}`
