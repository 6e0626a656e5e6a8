# twenty-five jobs, and how the source of the page tells what happened

import rxjobs.testing

jobs = [rj.testing.a_job() for _ in range(25)]
